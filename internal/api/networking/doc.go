// Package networking declares the resources of the API group networking.k8s.io:
// what may reach pods, how HTTP from outside finds Services, and the addresses that
// Services have.
//
// The forms of these kinds from before networking.k8s.io/v1 are in the *_legacy.go
// files. Who obeys the objects is not here.
package networking
