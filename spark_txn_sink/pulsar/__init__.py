"""The sink for Pulsar topics: tasks send rows in one Pulsar transaction, and the driver commits it exactly once.

options        the options of a write to Pulsar
plan           the topic, its segments and the columns of a write
sending        the part of a task: routes rows, sends entries, reports
control        the rules of the control topic. Pure
committing     the driver's steps from the reports of the tasks to the end of the transaction
control_topic  reads and writes the control topic of an application
settling       records which records of a topic's log are no longer needed
admin          creates topics through the REST interface
writer         the writers that Spark calls
"""
