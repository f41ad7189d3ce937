// Package relay joins the streams of a client of the node agent with those that
// the container runtime serves, where they cannot be handed through as they are:
// [Attachment] and [Execution].
//
// It knows of streams alone. Which container is meant, and what has been written
// before a client came, is the node agent's business.
package relay
