"""Request gate: carries out the decision of the rules for each request before and after it is served."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from proxy.core import stored_topics
from proxy.core.context import Context
from proxy.core.events.request import count
from proxy.core.messaging import Messaging, Serve, as_future, completed, served
from proxy.traffic_rules.decision import Decision, Rejection
from proxy.traffic_rules.deferral import defer
from proxy.traffic_rules.delayed_receives import FlowControlled, empty_reply, max_wait, shorten_poll
from proxy.traffic_rules.evaluator import Evaluator
from proxy.traffic_rules.mirroring import MirrorSender
from proxy.traffic_rules.model import RuleFile
from proxy.traffic_rules.request_attributes import RequestAttributes
from remoting import command as commands
from remoting.codes import STORED, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ClientGone, MessageNotFound, NotPermitted, RemotingError
from remoting.outcomes import Reply

_SEND_BACK: Final = int(RequestCode.CONSUMER_SEND_MSG_BACK)
Handled = Awaitable[RemotingCommand] | None


class UnderMaintenance(RemotingError):
    """Sends to the topic are rejected for now. Producers retry after this code."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE


class RequestGate:
    """Evaluates the rules for each request and rejects, delays, serves, meters and mirrors it accordingly.

    evaluator: the rules in force. maintenance_failures: number of requests rejected by maintenance rules. on_effect:
    called with the rule's name and the request when a request is rejected or delayed by a limit.
    """

    def __init__(self, core: Messaging, mirrors: MirrorSender, on_effect: Callable[[str, Context], None]) -> None:
        self._core = core
        self._mirrors = mirrors
        self._on_effect = on_effect
        self.evaluator = Evaluator(RuleFile())
        self.maintenance_failures = 0

    def handle(self, context: Context, serve: Serve) -> Handled:
        """Serve a request as the rules decide. Raises RemotingError if it is rejected."""
        evaluator = self.evaluator
        if not evaluator.covers(context.code):
            return serve(context)
        if context.code == _SEND_BACK and evaluator.reads_topics(_SEND_BACK):
            return self._handle_send_back(context, serve)
        return self._handle(RequestAttributes(context), context, serve)

    async def _handle_send_back(self, context: Context, serve: Serve) -> RemotingCommand:
        """Serve a send-back as the rules decide by the topics of the message: the one in the request may be false.

        A message that is in no queue, any more or yet, is matched by the topic in the request, unless rules deny by
        topics.
        """
        attributes = RequestAttributes(context)
        try:
            message = await stored_topics.view(self._core, context, context.fields["offset"])
            attributes.stored_topics = stored_topics.topics_of(message, context.fields["group"])
        except (MessageNotFound, NotPermitted):
            if self.evaluator.denies_by_topics(_SEND_BACK):
                raise
        return await served(lambda request: self._handle(attributes, request, serve), context)

    def _handle(self, attributes: RequestAttributes, context: Context, serve: Serve) -> Handled:
        decision = self.evaluator.evaluate(attributes, context.started)
        if decision is None or decision.unconditional:
            return serve(context)
        if decision.rejection is not None:
            return self._reject(context, decision, decision.rejection)
        if not decision.wait:
            return self._serve(context, decision, serve)
        if decision.waiting_limit:
            return self._delay_receive(context, decision, serve)
        return defer(decision.wait, partial(self._serve, context, decision, serve), commands.success())

    def _reject(self, context: Context, decision: Decision, rejection: Rejection) -> Handled:
        self._on_effect(rejection.rule, context)
        if rejection.kind == "fault":
            answer = commands.response(rejection.code, remark=rejection.text)
            if decision.wait:
                return defer(decision.wait, partial(completed, answer), answer)
            return completed(answer)
        if rejection.kind == "limit":
            raise FlowControlled(rejection.text)
        if rejection.kind == "maintenance":
            self.maintenance_failures += 1
            raise UnderMaintenance(rejection.text)
        raise NotPermitted(rejection.text)

    def _serve(self, context: Context, decision: Decision, serve: Serve) -> Handled:
        """Serve the request, then meter its reply and send its copies."""
        if decision.wait and context.channel.closed:
            raise ClientGone("the client disconnected")
        mirrors = decision.mirrors
        # Forwarding overwrites the command except for its fields and body.
        original = context.command.copy() if mirrors else None
        handling = serve(context)
        if not mirrors and not decision.metered:
            return handling
        if handling is None:
            self._on_reply(decision, original, None)
            return None
        reply = as_future(handling)
        reply.add_done_callback(partial(self._on_reply, decision, original))
        return reply

    def _on_reply(self, decision: Decision, original: RemotingCommand | None, reply: Reply | None) -> None:
        if reply is not None:
            if reply.cancelled() or reply.exception() is not None:
                return
            answer = reply.result()
            if answer.code not in STORED:
                return
            if decision.metered:
                decision.meter(count(answer.body), len(answer.body), time.monotonic())
        if original is not None:
            for mirror in decision.mirrors:
                self._mirrors.send(self._core.backend, mirror, original)

    def _delay_receive(self, context: Context, decision: Decision, serve: Serve) -> Handled:
        """Serve a receive after its wait for a limit, or answer that there is no message if it may not wait so long."""
        self._on_effect(decision.waiting_limit, context)
        longest = max_wait(context)
        if decision.wait > longest:
            return defer(longest, partial(empty_reply, context, decision.waiting_limit), commands.success())

        def release() -> Handled:
            shorten_poll(context, decision.wait)
            decision.charge(time.monotonic())
            return self._serve(context, decision, serve)

        return defer(decision.wait, release, commands.success())
