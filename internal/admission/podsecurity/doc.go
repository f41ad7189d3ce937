// Package podsecurity is the plugin PodSecurity: the Pod Security Standards that
// namespaces ask for by labels. What the standards say is the library's; here is whom
// they are held against, and what is said about it.
//
// Start at podsecurity.go; namespace.go looks at the labels themselves, config.go has
// what holds for namespaces without.
package podsecurity
