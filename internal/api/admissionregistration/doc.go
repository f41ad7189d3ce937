// Package admissionregistration declares the resources of the API group
// admissionregistration.k8s.io, which say who is asked about writes: webhooks of both kinds,
// and policies. What comes of them is admission's affair (admission/webhook).
package admissionregistration
