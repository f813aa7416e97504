"""Builds what checks a catalogue. Its modules are imported when somebody checks one: no search needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolscript.services.tools.variants import Variants

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.services.catalogue_check.check import CatalogueCheck


def build_catalogue_check(app: App) -> CatalogueCheck:
    """The check of an application's catalogue."""
    from toolscript.services.catalogue_check.check import CatalogueCheck
    from toolscript.services.catalogue_check.trial import TextTrial

    embedder, index, gateway = app.model.embedder, app.catalogue_index, app.servers.gateway
    variants = Variants(gateway.find_spec, gateway.get_position)
    trial = TextTrial(embedder, index, app.catalogue.snapshots.capabilities, app.settings.search_alpha, variants)
    return CatalogueCheck(
        index,
        app.catalogue.snapshots,
        app.catalogue.visibility.find_view,
        app.tools.search,
        app.stores.feedback,
        trial,
        app.language_model,
    )
