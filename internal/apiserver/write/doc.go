// Package write carries writes from a call to a committed revision: pipeline.go, top to
// bottom, for creates, updates, patches and applies, delete.go for deletes ([Pipeline]).
// What a call says has been read and looked at before; how its result is shown is
// decided afterwards. A1 and A2 in the code are invariants of package apiserver.
package write
