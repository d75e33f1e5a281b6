from __future__ import annotations

from tests.quantize.tensorrt.engines import World
from trimaran.quantize.float_bound import bare_s, float_bound


def test_the_bare_products_take_no_longer_than_the_graph_that_they_are_part_of(world: World) -> None:
    """Held against itself a graph cannot be shown to lose: the bound leaves out all that is not a product."""
    graph = world.exported("bert")
    ratios = float_bound(str(graph.directory), str(graph.directory), [4, 64], 127)
    assert len(ratios) == 2 and all(0 < ratio < 1 for ratio in ratios)


def test_more_rows_take_longer() -> None:
    assert bare_s(1, 256, 256) < bare_s(512, 256, 256)
