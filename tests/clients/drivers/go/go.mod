module driver

go 1.22

require github.com/OWNER/redlockd/clients/go v0.0.0

replace github.com/OWNER/redlockd/clients/go => ../../../../clients/go
