// Package namespace empties a namespace that is being deleted, pods first, and
// then lets it go. What other servers have in it (aggregated APIs) is emptied by who
// knows them ([Elsewhere]).
package namespace
