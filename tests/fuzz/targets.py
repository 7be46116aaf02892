"""All targets of fuzzing."""

from tests.fuzz import body_targets, connection_targets, request_targets

TARGETS = {
    target.name: target for target in (*connection_targets.TARGETS, *body_targets.TARGETS, *request_targets.TARGETS)
}
