// Package named is about the directory in which network namespaces have names, which is everybody's.
package named
