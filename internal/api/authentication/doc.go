// Package authentication declares the resources of the API group authentication.k8s.io: the questions
// who a token or caller is. Answering them is the API server's work.
package authentication
