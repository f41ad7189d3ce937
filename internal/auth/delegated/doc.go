// Package delegated has the API server say who somebody is and what they may do, for parts
// that serve something beside it: tokens are reviewed, and so are rights. What it says is
// remembered for as long as upstream's parts do.
//
// It serves nothing itself: package guard stands before a node's agent, package parts before
// the ports of other programs.
package delegated
