"""Routes of webhooks, which are the owner's."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import CURSOR_BY_NAME, LIMIT, NODE, Route
from node.model.wire.webhooks import NewWebhook, Webhook, WebhookDocument, WebhookTested


async def add(request: web.Request) -> web.StreamResponse:
    """Answer 201 with the new webhook; its secret is shown this once."""
    requests.refuse_other_parameters(request)
    added = await request.app[NODE].webhooks.add(requests.document(request, WebhookDocument))
    return responses.document_response(added, 201, {"Location": f"/v1/webhooks/{added.name}"})


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of webhooks by name, with how their last delivery went."""
    requests.refuse_other_parameters(request, "limit", "cursor")
    every = await request.app[NODE].webhooks.all()
    return responses.list_response(*requests.page_of_names(request, every))


async def test(request: web.Request) -> web.StreamResponse:
    """Send a message of the type test at once, and answer when it was accepted."""
    name = requests.name(request, "webhook")
    return responses.document_response(
        WebhookTested(name=name, message=await request.app[NODE].webhooks.test(name))
    )


async def remove(request: web.Request) -> web.StreamResponse:
    """Remove a webhook, and drop what it was not told yet."""
    await request.app[NODE].webhooks.remove(requests.name(request, "webhook"))
    return web.Response(status=204)


ROUTES = (
    Route(
        "POST",
        "/v1/webhooks",
        add,
        "Add a webhook; its secret is shown this once",
        WebhookDocument,
        NewWebhook,
        status=201,
    ),
    Route(
        "GET",
        "/v1/webhooks",
        list_,
        "List webhooks, and how their last delivery went",
        answer=Webhook,
        listed=True,
        query=(LIMIT, CURSOR_BY_NAME),
    ),
    Route(
        "POST",
        "/v1/webhooks/{name}/test",
        test,
        "Send a test message to a webhook",
        answer=WebhookTested,
    ),
    Route("DELETE", "/v1/webhooks/{name}", remove, "Remove a webhook", status=204),
)
