package main

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"

	_ "github.com/holdfast-go/holdfast/backends/kubernetes/register" // their URLs
	_ "github.com/holdfast-go/holdfast/backends/postgres/register"
	_ "github.com/holdfast-go/holdfast/backends/redis/register"
	_ "github.com/holdfast-go/holdfast/backends/sqlite/register"
)

var _ = fmt.Sprint
var _ = open.Open
var _ lease.Config
var _ store.Store
var _ = zap.NewNop
