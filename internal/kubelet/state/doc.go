// Package state is the form in which a node writes down which containers have which processors and which memory:
// upstream's, in files of upstream's names, since monitors read them and a node may come from another agent.
//
// What lives here reads and writes whole files; who gets what is decided in packages cpus and memory.
// The names of the types are upstream's, too: the checksums are taken of texts in which they are.
package state
