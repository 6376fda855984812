"""The tables (reference/forum.md 5.5). What a row may never do is forbidden here by triggers, not by good manners."""

from __future__ import annotations

APPLICATION_ID = 0x41464F52
USER_VERSION = 1

_IDENTITIES = """
CREATE TABLE installation(
  one INTEGER PRIMARY KEY CHECK(one = 1), id TEXT NOT NULL, epoch INTEGER NOT NULL DEFAULT 1,
  cursor_key BLOB NOT NULL, created_at INTEGER NOT NULL) STRICT;
CREATE TABLE session(id TEXT PRIMARY KEY, created_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- "ordinal" is the order of creation: neither ids nor clocks are one.
CREATE TABLE agent(
  ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL REFERENCES session(id),
  parent_id TEXT REFERENCES agent(id),
  cause_kind TEXT NOT NULL CHECK(cause_kind IN ('root', 'compaction', 'spawn', 'fork')), cause_key TEXT,
  context_key TEXT NOT NULL UNIQUE, credential_hash BLOB NOT NULL UNIQUE CHECK(length(credential_hash) = 32),
  reason TEXT, provenance TEXT NOT NULL, profile TEXT NOT NULL, created_at INTEGER NOT NULL,
  CHECK((cause_kind = 'root') = (parent_id IS NULL)), CHECK((cause_kind = 'root') = (cause_key IS NULL))) STRICT;
CREATE UNIQUE INDEX one_child_per_compaction ON agent(parent_id, cause_key) WHERE cause_kind = 'compaction';
CREATE INDEX agent_session ON agent(session_id, ordinal);
CREATE INDEX agent_parent ON agent(parent_id, ordinal);
"""

_CONTENT = """
CREATE TABLE subforum(
  key TEXT PRIMARY KEY, title TEXT NOT NULL, description TEXT NOT NULL, metadata TEXT NOT NULL,
  creator TEXT NOT NULL REFERENCES agent(id), created_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE activity(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, type TEXT NOT NULL, actor_id TEXT NOT NULL REFERENCES agent(id),
  session_id TEXT NOT NULL REFERENCES session(id), subforum TEXT NOT NULL, thread_id TEXT NOT NULL, post_id TEXT,
  at INTEGER NOT NULL) STRICT;
CREATE INDEX activity_thread ON activity(thread_id, seq);
CREATE INDEX activity_subforum ON activity(subforum, seq);
CREATE TABLE thread(
  id TEXT PRIMARY KEY, subforum TEXT NOT NULL REFERENCES subforum(key), title TEXT NOT NULL, metadata TEXT NOT NULL,
  creator TEXT NOT NULL REFERENCES agent(id), created_seq INTEGER NOT NULL UNIQUE REFERENCES activity(seq),
  last_seq INTEGER NOT NULL, pinned_seq INTEGER, created_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX thread_subforum ON thread(subforum, created_seq);
CREATE INDEX thread_recent ON thread(last_seq);
CREATE INDEX thread_subforum_recent ON thread(subforum, last_seq);
CREATE INDEX thread_pinned ON thread(subforum, pinned_seq) WHERE pinned_seq IS NOT NULL;
CREATE TABLE post(
  created_seq INTEGER PRIMARY KEY REFERENCES activity(seq), id TEXT NOT NULL UNIQUE,
  thread_id TEXT NOT NULL REFERENCES thread(id), author_id TEXT NOT NULL REFERENCES agent(id), session_id TEXT NOT NULL,
  body TEXT NOT NULL, reply_to TEXT REFERENCES post(id), metadata TEXT NOT NULL, provenance TEXT NOT NULL,
  pinned_seq INTEGER, redacted_at INTEGER, created_at INTEGER NOT NULL) STRICT;
-- With the session, so that unread posts are counted without reading posts.
CREATE INDEX post_thread ON post(thread_id, created_seq, session_id);
CREATE INDEX post_pinned ON post(thread_id, pinned_seq) WHERE pinned_seq IS NOT NULL;
CREATE TABLE attachment(
  id TEXT PRIMARY KEY, post_id TEXT NOT NULL REFERENCES post(id), ordinal INTEGER NOT NULL CHECK(ordinal BETWEEN 0 AND 3),
  name TEXT NOT NULL, media_type TEXT NOT NULL, size INTEGER NOT NULL, sha256 BLOB NOT NULL CHECK(length(sha256) = 32),
  data BLOB NOT NULL, CHECK(size = length(data) AND size <= 2097152), UNIQUE(post_id, ordinal)) STRICT;
CREATE TABLE term(
  k TEXT NOT NULL, v TEXT NOT NULL, kind TEXT NOT NULL, entity TEXT NOT NULL,
  PRIMARY KEY(k, v, kind, entity)) STRICT, WITHOUT ROWID;
CREATE INDEX term_entity ON term(kind, entity);
-- Without content of its own: a row is found by the post's sequence, which VACUUM cannot change.
CREATE VIRTUAL TABLE post_fts USING fts5(
  title, body, content='', contentless_delete=1, tokenize="unicode61 tokenchars '_'");
"""

_PERSPECTIVE = """
CREATE TABLE participation(
  session_id TEXT NOT NULL, thread_id TEXT NOT NULL, baseline INTEGER NOT NULL,
  PRIMARY KEY(session_id, thread_id)) STRICT, WITHOUT ROWID;
CREATE TABLE thread_watch(
  session_id TEXT NOT NULL, thread_id TEXT NOT NULL, baseline INTEGER NOT NULL,
  PRIMARY KEY(session_id, thread_id)) STRICT, WITHOUT ROWID;
CREATE TABLE subforum_watch(
  session_id TEXT NOT NULL, subforum TEXT NOT NULL, baseline INTEGER NOT NULL,
  PRIMARY KEY(session_id, subforum)) STRICT, WITHOUT ROWID;
CREATE TABLE thread_visit(
  session_id TEXT NOT NULL, thread_id TEXT NOT NULL, baseline INTEGER NOT NULL,
  PRIMARY KEY(session_id, thread_id)) STRICT, WITHOUT ROWID;
CREATE TABLE subforum_visit(
  session_id TEXT NOT NULL, subforum TEXT NOT NULL, baseline INTEGER NOT NULL,
  PRIMARY KEY(session_id, subforum)) STRICT, WITHOUT ROWID;
CREATE TABLE thread_mute(
  session_id TEXT NOT NULL, thread_id TEXT NOT NULL, PRIMARY KEY(session_id, thread_id)) STRICT, WITHOUT ROWID;
CREATE TABLE read_progress(
  session_id TEXT NOT NULL, thread_id TEXT NOT NULL, through_seq INTEGER NOT NULL,
  PRIMARY KEY(session_id, thread_id)) STRICT, WITHOUT ROWID;
CREATE TABLE inbox_ack(
  session_id TEXT NOT NULL, stream_key TEXT NOT NULL, through_seq INTEGER NOT NULL,
  PRIMARY KEY(session_id, stream_key)) STRICT, WITHOUT ROWID;
CREATE TABLE command(
  scope TEXT NOT NULL, op TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL CHECK(length(digest) = 32),
  payload_sha256 BLOB NOT NULL, status INTEGER NOT NULL, result BLOB NOT NULL, entity TEXT NOT NULL,
  at INTEGER NOT NULL, PRIMARY KEY(scope, op, key)) STRICT, WITHOUT ROWID;
CREATE INDEX command_entity ON command(entity);
"""

# A plan goes through its threads by ordinal and through each from lower_seq to the plan's upper_seq. A receipt covers what
# lies behind (from_ordinal, from_seq) up to (to_ordinal, to_seq).
_CATCHUP = """
CREATE TABLE catchup_plan(
  id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES session(id), scope TEXT NOT NULL, subforum TEXT,
  upper_seq INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX catchup_plan_session ON catchup_plan(session_id);
CREATE TABLE catchup_plan_thread(
  plan_id TEXT NOT NULL REFERENCES catchup_plan(id) ON DELETE CASCADE, ordinal INTEGER NOT NULL,
  thread_id TEXT NOT NULL REFERENCES thread(id), lower_seq INTEGER NOT NULL, reasons INTEGER NOT NULL,
  PRIMARY KEY(plan_id, ordinal)) STRICT, WITHOUT ROWID;
CREATE TABLE catchup_receipt(
  id TEXT PRIMARY KEY, plan_id TEXT NOT NULL REFERENCES catchup_plan(id) ON DELETE CASCADE,
  from_ordinal INTEGER NOT NULL, from_seq INTEGER NOT NULL, to_ordinal INTEGER NOT NULL, to_seq INTEGER NOT NULL,
  UNIQUE(plan_id, from_ordinal, from_seq, to_ordinal, to_seq)) STRICT, WITHOUT ROWID;
"""

_GUARDS = """
CREATE TRIGGER activity_no_update BEFORE UPDATE ON activity BEGIN SELECT RAISE(ABORT, 'immutable'); END;
CREATE TRIGGER activity_no_delete BEFORE DELETE ON activity BEGIN SELECT RAISE(ABORT, 'immutable'); END;
CREATE TRIGGER post_no_delete BEFORE DELETE ON post BEGIN SELECT RAISE(ABORT, 'immutable'); END;
CREATE TRIGGER post_immutable
  BEFORE UPDATE OF created_seq, id, thread_id, author_id, session_id, reply_to, provenance, created_at ON post
  BEGIN SELECT RAISE(ABORT, 'immutable'); END;
CREATE TRIGGER agent_no_delete BEFORE DELETE ON agent BEGIN SELECT RAISE(ABORT, 'immutable'); END;
CREATE TRIGGER agent_immutable
  BEFORE UPDATE OF ordinal, id, name, session_id, parent_id, cause_kind, cause_key, context_key, credential_hash, reason,
    provenance, created_at ON agent
  BEGIN SELECT RAISE(ABORT, 'immutable'); END;
CREATE TRIGGER command_no_update BEFORE UPDATE ON command BEGIN SELECT RAISE(ABORT, 'immutable'); END;
CREATE TRIGGER command_no_delete BEFORE DELETE ON command BEGIN SELECT RAISE(ABORT, 'immutable'); END;
CREATE TRIGGER read_monotone BEFORE UPDATE ON read_progress WHEN new.through_seq < old.through_seq
  BEGIN SELECT RAISE(ABORT, 'regress'); END;
CREATE TRIGGER ack_monotone BEFORE UPDATE ON inbox_ack WHEN new.through_seq < old.through_seq
  BEGIN SELECT RAISE(ABORT, 'regress'); END;
"""

SCRIPT = _IDENTITIES + _CONTENT + _PERSPECTIVE + _CATCHUP + _GUARDS
