// Package claims says which volume suits a claim, and how the binding of a volume
// and a claim is written down: the annotations of both, and the reference of the
// volume. The controller that binds, the scheduler, the node agent and admission ask it.
//
// It holds pure functions of objects. Who asks has the objects and does the writing.
package claims
