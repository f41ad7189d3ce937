// Package trust is whom an API server believes, in the form in which it tells other programs that
// serve something beside it: the ConfigMap extension-apiserver-authentication. [Publisher] keeps that
// ConfigMap right, [Published] reads it.
//
// Of several servers each adds what it believes and takes nothing away that others have added, but
// for certificates that have ended: while keys are exchanged, old and new ones are believed.
package trust
