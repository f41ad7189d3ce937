// Package podgc removes pods that nobody else will: bound to a node that is
// gone, ending on a node that is out of service, deleted before they were bound,
// or finished long ago when there are too many of those.
package podgc
