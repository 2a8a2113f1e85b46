"""What a speaker points at, slide by slide."""

from __future__ import annotations

#: Slide → paragraphs of its notes.
POINT_AT: dict[str, tuple[str, ...]] = {
    "job": (
        "Say what was trained and on how many ranks before any picture: every number in this deck "
        "was measured in that run, none is simulated.",
        "The configuration on the right is what can be turned; the plans later are what DDP's "
        "Reducer made of it.",
    ),
    "timeline": (
        "Read it from the top: per rank the compute lane, below it a lane for each bucket, in the "
        "order of launch.",
        "Point at a bucket while it fills (yellow, a tick for every gradient that is ready), at "
        "what it waits for once it is full, and at its transfer (blue). The box behind the lanes "
        "is exposed communication: there the rank only waits.",
        "Hover a stretch to name its parameters; drag over a part to zoom in; the reset tool goes "
        "back. The list above chooses another step, and the slides after this one follow it.",
    ),
    "plan": (
        "Top to bottom: parameters as they are registered, the first plan, the plan after the "
        "rebuild. Point at the order: DDP expects the last registered gradient first, then sees "
        "the order in which gradients really came.",
        "Hatched is what exceeds the limit: a bucket closes with the tensor that reaches it.",
    ),
    "countdown": (
        "Press Play, then stop where a bucket reaches zero. A bucket is launched when nothing is "
        "pending in it and every earlier one was launched: the dotted line goes from launch to "
        "launch.",
        "Orange is a head-of-line wait: full, but an earlier bucket is not. Ask which gradient "
        "holds it up before you read the sentence.",
    ),
    "buffers": (
        "Bars are the time of buffer broadcasts, before the forward. The lanes below are the "
        "conditions that must hold: black is one that did not.",
        "Buffers are overwritten by one rank's, not averaged.",
    ),
    "overlap": (
        "Blue is communication that the backward hid, the other colour is what a rank waited for. "
        "Dotted lines are changes of the configuration.",
        "The first steps are slower: the first bucket plan, and caches that are still cold.",
    ),
    "comparison": (
        "The line on each bar is the noise: the lowest and the highest median of a round. Where "
        "two of these overlap, the measurement does not tell the configurations apart, and the "
        "sentence on top does not rank them.",
    ),
    "findings": (
        "One sentence for each question. Each leads to its slide, where there is one; stay on the "
        "first one that surprises the room.",
    ),
    "source": (
        "The highlighted line made the call that is shown next. These lines are those of the torch "
        "that was installed where this deck was written.",
    ),
    "close": (
        "Leave this one on the screen during questions: whoever wants to check a number can.",
    ),
}
