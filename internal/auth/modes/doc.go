// Package modes makes the authorizers that the administrator asks for, in their order: by flags
// or by an AuthorizationConfiguration, which is read again when its file changes.
//
// Start at [Options] and [New]. Invariants, cited by number in the code:
//
//	M1 Members of system:masters may do everything, whatever the modes are.
//	M2 Parts of this process are authorized as nodes and by their roles, whatever the modes are: see [auth.Within].
//	M3 A file that cannot be is reported, and what was read before stays in force.
//	M4 Types other than webhooks come and go with a start alone: a file that has others than it had then cannot be.
package modes
