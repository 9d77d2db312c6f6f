// Package membership tells who leads a group of nodes.
//
// It holds the words that singletons and shards understand: LeaderChanged, and
// Leadership, the one small interface behind which every source of leadership
// stands. Leadership is a placement hint: the right to run something is always
// a lease's.
package membership
