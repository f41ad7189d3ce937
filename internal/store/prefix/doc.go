// Package prefix is a store whose keys lie below another prefix than [Registry] in the store that it
// is over: several clusters may have one etcd, or other API servers may have written it so
// (--etcd-prefix). Everybody above it knows one prefix alone.
package prefix
