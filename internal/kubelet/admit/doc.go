// Package admit decides whether a node takes on a pod that was bound to it: the
// scheduler may have decided on old knowledge, or somebody has named the node by hand.
//
// What lives here are decisions, values in, reason and message out, and the [Ledger] of
// what pods have taken, which they rest on. Who asks, and tells the user, is the agent.
package admit
