// Command certmanager runs the parts of cert-manager, each as a process of its own: certmanager controller, webhook and
// cainjector. The project's own main packages are modules that no proxy has (their paths in the repository are not the
// names they have), so what wires its packages together is here; all that they do is theirs.
package main
