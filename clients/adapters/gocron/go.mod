module github.com/OWNER/redlockd/clients/adapters/gocron

go 1.22

require (
	github.com/OWNER/redlockd/clients/go v0.1.0
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/google/uuid v1.6.0
	github.com/jonboulle/clockwork v0.5.0
)

require github.com/robfig/cron/v3 v3.0.1 // indirect

replace github.com/OWNER/redlockd/clients/go => ../../go
