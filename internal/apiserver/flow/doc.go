// Package flow bounds how many requests run at one time, and shares the places
// between flows (users). No flow takes them all: it may hold as many as it leaves
// free, and what is more waits in a line of its own, and the lines take turns. A
// flow that asks for too much is refused and holds up nobody but itself. Some
// places are kept for the flows that the cluster lives by, which also go first.
package flow
