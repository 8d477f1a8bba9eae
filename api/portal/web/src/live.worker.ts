import { runLive } from "./live.engine";

// A SharedWorker: all tabs of the portal share one event stream. It speaks to them by a
// BroadcastChannel, so it need not know which tabs are open.
runLive();
