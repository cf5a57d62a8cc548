"""Read the resources of one plug-in without a Broker resource, for the plug-in's own commands."""

from __future__ import annotations

from pathlib import Path

from oauthbroker.config.bundle.loading import check_names
from oauthbroker.config.plugins.named_plugins import plugins_of
from oauthbroker.config.plugins.plugin_resources import plugin_drafts
from oauthbroker.config.problems.problems import Problems, SourcePlace
from oauthbroker.config.reading.files import documents_of, read_files
from oauthbroker.config.reading.shape import written
from oauthbroker.config.values.value_sources import SECRET_ADVICE
from oauthbroker.model.plugin_resources import PluginResource, PluginResources


def read_resources(path: str | Path, plugin: str) -> PluginResources:
    """Read and check the resources of a plug-in in a YAML file, or in a folder and all below it.

    Pure, as `load` is: no value is resolved, so no resource has secrets. Raises ConfigRefused with every problem.
    """
    bundle, problems, named = Path(path), Problems(), plugins_of([plugin])
    for _, what, todo in named.flaws:
        problems.add(SourcePlace(str(bundle)), "", what, todo)
    documents = documents_of(read_files(bundle, problems), problems, named.kinds)
    resources = [each for document in documents for each in written(document, problems, named.kinds)]
    check_names(documents, problems)
    folder = (bundle if bundle.is_dir() else bundle.parent).absolute()
    drafts = plugin_drafts(resources, folder, SECRET_ADVICE).get(plugin, ())
    problems.raise_if_any()
    return PluginResources(tuple(PluginResource(each.kind, each.name, each.spec) for each in drafts), folder)
