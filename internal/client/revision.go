package client

// RevisionHeader is the header in which our API server says at which revision
// an object was deleted: the Status that clients get for it has no place for
// that, and whoever has deleted something must be able to wait until its cache
// shows it.
const RevisionHeader = "Kemudi-Revision"
