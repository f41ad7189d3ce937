// Package ingress makes the tables of edges of what the API says: Ingresses with the
// annotations that are obeyed, the endpoints of their services, certificates of Secrets. Start at
// [Compile], and at [Model] for who follows changes.
//
// All of it is pure: objects in, package route's values out, and in words what of an Ingress
// cannot be obeyed. Who reads the objects and who sends the tables is not known here.
package ingress
