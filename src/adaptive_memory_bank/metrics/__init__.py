"""How good are the embeddings: Recall@k, MAP@R, R-precision, weighted kNN accuracy and nearest neighbours."""

from adaptive_memory_bank.metrics.knn import knn_accuracy
from adaptive_memory_bank.metrics.retrieval import QueryScores, retrieval_metrics, score_queries
from adaptive_memory_bank.metrics.similarity import nearest

__all__ = ["QueryScores", "knn_accuracy", "nearest", "retrieval_metrics", "score_queries"]
