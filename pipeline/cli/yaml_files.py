"""YAML files: read without a silent choice between two keys of the same name."""

from __future__ import annotations

from typing import Any

import yaml

from transforms.base.errors import StoreError, UserError
from transforms.storage.files import check_reachable, kind_of, read_bytes


class _Loader(yaml.SafeLoader):
    """Refuses a key that a mapping has twice and a value that is inside of itself, and leaves dates as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: Any):
        super().__init__(stream)
        self.deep_construct = True  # so that a list or mapping that is inside of itself is an error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[Any]()
        for key_node, _ in node.value:
            key = (key_node.tag, str(key_node.value))
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"two keys {key_node.value}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(url: str) -> Any:
    """Read a YAML file; JSON is YAML, too.

    Args:
        url: of the file.

    Raises:
        UserError: if there is no such file, or it is not YAML.
        Unavailable: if its store does not answer.
    """
    try:
        check_reachable(url)
        if kind_of(url) != "file":
            raise UserError(f"{url}: there is no such file.")
        return yaml.load(read_bytes(url), _Loader)
    except StoreError as error:
        raise error.as_user_error(str(error)) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UserError(f"{url}: {where}{error.problem or error.context}.") from None
    except (yaml.YAMLError, OSError, ValueError, ImportError, RecursionError) as error:
        raise UserError(f"{url}: {str(error).splitlines()[0]}.") from None
