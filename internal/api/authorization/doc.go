// Package authorization declares the resources of the API group authorization.k8s.io: the questions
// who may do what. Answering them is the API server's work.
package authorization
