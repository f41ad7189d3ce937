package claims

import "strings"

// BuiltIn reports whether a name is one of those that nobody but the cluster itself
// may have.
func BuiltIn(provisioner string) bool { return strings.HasPrefix(provisioner, "kubernetes.io/") }
