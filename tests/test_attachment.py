"""What an attachment says of itself."""

from __future__ import annotations

from pathlib import Path

from ddpviz.attachment import Attachment
from ddpviz.probe import Recorder
from ddpviz.recording import Recording


def test_an_attachment_says_where_it_records_and_whether_it_still_does() -> None:
    attachment = Attachment(Recorder(level="summary"), None, Path("runs/a"))
    assert repr(attachment) == "<Attachment: recording, to runs/a, level summary>"
    attachment.close()
    assert repr(attachment) == "<Attachment: closed, to runs/a, level summary>"
    in_memory = Attachment(Recorder(), Recording(), None)
    assert repr(in_memory) == "<Attachment: recording, in memory, level default>"
    in_memory.close()
