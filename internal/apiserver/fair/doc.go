// Package fair bounds how many requests run at one time, and shares the places
// between flows (users): when all are taken, each flow waits in a line of its
// own, and the lines take turns. A flow that asks for too much is refused and
// holds up nobody but itself.
package fair
