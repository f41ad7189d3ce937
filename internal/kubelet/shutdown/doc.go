// Package shutdown has the pods of a node end before its machine goes down, for as long as people allow, and what the
// cluster cannot do without last (KEP-2000). The machine's shutdowns are told, and can be held up for a while, by
// systemd-logind alone, over D-Bus: where there is none, nothing waits.
//
//	D1 The shutdown is held up only while there is something to end: the lock is given back when the last group has
//	   ended or has had its time.
//	D2 A node that goes down says so before its first pod ends, and takes no others on.
//	D3 A shutdown that is called off leaves a node that takes pods again.
package shutdown
