"""The one replica client: it speaks vLLM's HTTP dialect to every replica, embedded or not."""

from tertulia.backends.replicas.pool import HttpReplicas as HttpReplicas
