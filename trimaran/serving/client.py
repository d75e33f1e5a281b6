"""The client under its earlier name; new code imports `trimaran.client`."""

from trimaran.client import AsyncClient, Client, Protocol, Ranking

__all__ = ["AsyncClient", "Client", "Protocol", "Ranking"]
