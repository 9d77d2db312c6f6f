// Package actors is what protoactor's actor systems lack for this module.
//
//	Extension    one value of a kind for an actor system
//	Families     one process that stands for a family of actor ids
//	WatchLinks   tells of links to other nodes that broke
//
// A process of Families need not register each id: messages to the ids from other nodes
// reach it as they are, in no envelope, with all that their way needs in the id.
//
//	holdfast/at/<family>/<rest>       family: two segments; rest: the family's own
//
// A transport that knows of it says so with Enable, and asks Resolve about a target that is
// not registered. Nodes learn by other means which nodes can be reached like this: at any
// other node such a PID is a dead end.
package actors
