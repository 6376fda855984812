"""Files of posts: their bounds, their order, what is told about them and the bytes that come back."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from side_agents.forum import limits
from side_agents.forum.requests import AttachmentInput, PostContent
from side_agents.forum.service.forum import Forum
from tests.support.forum import Person, forum, forum_factory, refusal, register, reply, subforum, table_counts, thread

__all__ = ["forum", "forum_factory"]


@pytest.fixture
def ann(forum: Forum) -> Person:
    person = register(forum, "ann")
    subforum(forum, person, "lab")
    return person


@pytest.fixture
def opened(forum: Forum, ann: Person) -> str:
    return str(thread(forum, ann, "lab")["threadId"])


def file(name: str = "a.txt", data: bytes = b"data", media_type: str = "text/plain") -> AttachmentInput:
    return AttachmentInput(name=name, media_type=media_type, data=base64.b64encode(data).decode())


def post_with(forum: Forum, ann: Person, opened: str, *files: AttachmentInput) -> dict[str, Any]:
    made = reply(forum, ann, opened, attachments=files)
    return forum.content.post(ann.principal, made["postId"])


def test_i20_manifests_have_order_size_and_hash_of_the_stored_bytes(forum: Forum, ann: Person, opened: str) -> None:
    contents = [b"", b"\x00\xff" * 10, "größe".encode(), b"last"]
    files = [file(f"{number}.bin", data) for number, data in enumerate(contents)]
    post = post_with(forum, ann, opened, *files)
    assert [each["name"] for each in post["attachments"]] == ["0.bin", "1.bin", "2.bin", "3.bin"]
    for manifest, data in zip(post["attachments"], contents, strict=True):
        assert set(manifest) == {"id", "name", "mediaType", "size", "sha256"}
        assert (manifest["size"], manifest["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        assert forum.content.attachment(ann.principal, manifest["id"]).data == data


def test_d11_manifests_are_in_every_view_of_a_post(forum: Forum, ann: Person) -> None:
    made = thread(forum, ann, "lab", post=PostContent(body="b", attachments=(file(),)))
    single = forum.content.post(ann.principal, made["postId"])
    assert len(single["attachments"]) == 1
    assert forum.content.posts(ann.principal, made["threadId"])["posts"] == [single]


def test_t225_the_bytes_come_back_as_they_were_whatever_they_claim_to_be(
    forum: Forum, ann: Person, opened: str
) -> None:
    page = b"<script>alert(1)</script>"
    post = post_with(forum, ann, opened, file("page.html", page, "text/html"))
    found = forum.content.attachment(register(forum).principal, post["attachments"][0]["id"])
    assert (found.name, found.media_type, found.data) == ("page.html", "text/html", page)


@pytest.mark.parametrize(
    ("files", "field"),
    [
        ([file()] * 5, "body.attachments"),
        ([file(), file(data=b"x" * (limits.ATTACHMENT_BYTES + 1))], "body.attachments.1.data"),
        ([file(name="")], "body.attachments.0.name"),
        ([file(name="..")], "body.attachments.0.name"),
        ([file(name="a/b")], "body.attachments.0.name"),
        ([file(name="a\\b")], "body.attachments.0.name"),
        ([file(name="a\nb")], "body.attachments.0.name"),
        ([file(name="ü" * 128)], "body.attachments.0.name"),
        ([file(media_type="html")], "body.attachments.0.mediaType"),
        ([AttachmentInput(name="a", media_type="a/b", data="no base64!")], "body.attachments.0.data"),
        ([AttachmentInput(name="a", media_type="a/b", data="YQ")], "body.attachments.0.data"),
    ],
)
def test_a_file_out_of_bounds_is_refused_by_name_and_the_post_with_it(
    forum: Forum, ann: Person, opened: str, files: list[AttachmentInput], field: str
) -> None:
    before = table_counts(forum.database)
    refusal("invalid_argument", lambda: post_with(forum, ann, opened, *files), field=field)
    assert table_counts(forum.database) == before


def test_files_at_their_bounds_are_taken(forum: Forum, ann: Person, opened: str) -> None:
    largest = b"x" * limits.ATTACHMENT_BYTES
    post = post_with(forum, ann, opened, *(file("ü" * 127 + "x", largest) for _ in range(4)))
    assert sum(each["size"] for each in post["attachments"]) == limits.ATTACHMENTS_BYTES
