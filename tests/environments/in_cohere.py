"""Run in an environment that has Cohere's client: `in_cohere.py URL KEY`, prints JSON."""

import json
import sys

import cohere

TEXTS = ["the cat sat", "good dog"]


def main() -> None:
    url, key = sys.argv[1:]
    found = {}
    for version, client in {"v1": cohere.Client, "v2": cohere.ClientV2}.items():
        answer = client(api_key=key, base_url=url).rerank(model="rerank", query="cat", documents=TEXTS)
        found[version] = [[row.index, row.relevance_score] for row in answer.results]
    vectors = cohere.ClientV2(api_key=key, base_url=url).embed(
        model="embedding", texts=TEXTS, input_type="search_query", embedding_types=["float", "ubinary"]
    )
    found |= {"float": vectors.embeddings.float_, "ubinary": vectors.embeddings.ubinary}
    sys.stdout.write(json.dumps(found) + "\n")


main()
