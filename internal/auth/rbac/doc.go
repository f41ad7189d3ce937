// Package rbac decides by roles and bindings. It reads them from the process's
// caches and keeps an index from subjects to what is bound to them, so that a
// decision looks only at the bindings of the user and their groups.
//
// Start at [Authorizer]. rules.go has what a rule allows, covers.go whether
// rules go beyond others (nobody may grant more than they have), aggregate.go
// how cluster roles are made of others.
//
// Invariants, cited by number in the code:
//
//	R1 A decision takes in all that the caches showed when it began.
//	R2 A decision that allows by a rule says by which binding.
package rbac
