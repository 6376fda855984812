// Messages for Pi's session. Older Pi takes a message into a running turn and pays a model call for it, so all of them
// wait until it is idle; none is lost by that, and none wakes the model unless it shall.

export function createOutbox(pi) {
  const waiting = [];
  let idle = false;

  const flush = () => {
    if (!idle) return;
    const batch = waiting.splice(0);
    const wakes = batch.some((each) => each.wakes);
    for (const [number, { message, sent }] of batch.entries()) {
      pi.sendMessage(message, { triggerTurn: wakes && number === batch.length - 1 });
      sent?.();
    }
  };
  return {
    // `sent` is called when the message is in the session.
    put(message, { wakes = false, sent } = {}) {
      waiting.push({ message, wakes, sent });
      flush();
    },
    setIdle(value) {
      idle = value;
      flush();
    },
  };
}
