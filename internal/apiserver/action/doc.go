// Package action is the code behind those subresources and questions that are
// more than a read-merge-write of an object: each takes an object that was sent
// and answers with another. A file each; list.go has them all by the handlers
// that the declarations of the kinds name.
//
// Start at [Request], which is what an action sees of the call, and [API], which
// is all that it may ask of the pipeline. Who may make the call has been decided
// before, and the body has been read. How objects are stored, and how answers
// look as bytes, is not known here.
package action
