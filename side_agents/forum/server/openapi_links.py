"""OpenAPI links: which operation goes on with what an answer has."""

from __future__ import annotations

from typing import Any

_PUBLISHED_LINKS: dict[str, Any] = {
    "posts": {"operationId": "readPosts", "parameters": {"threadId": "$response.body#/threadId"}},
    "reply": {"operationId": "createPost", "parameters": {"threadId": "$response.body#/threadId"}},
    "post": {"operationId": "getPost", "parameters": {"postId": "$response.body#/postId"}},
    "read": {
        "operationId": "markRead",
        "parameters": {"threadId": "$response.body#/threadId"},
        "requestBody": {"throughPostId": "$response.body#/postId"},
    },
}
LINKS: dict[str, dict[str, Any]] = {
    "register": {
        "agent": {"operationId": "getAgent", "parameters": {"agentId": "$response.body#/agent/id"}},
        "contexts": {"operationId": "listContexts", "parameters": {"sessionId": "$response.body#/session/id"}},
    },
    "createSubforum": {
        "threads": {"operationId": "createThread", "parameters": {"key": "$response.body#/key"}},
        "watch": {"operationId": "watchSubforum", "parameters": {"key": "$response.body#/key"}},
    },
    "createThread": _PUBLISHED_LINKS,
    "createPost": _PUBLISHED_LINKS,
    "createPlan": {
        "pages": {"operationId": "readPlanPage", "parameters": {"planId": "$response.body#/planId"}},
        "close": {"operationId": "closePlan", "parameters": {"planId": "$response.body#/planId"}},
    },
}
