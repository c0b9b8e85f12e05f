"""The sink for Pulsar topics: tasks send rows in one Pulsar transaction, and the driver commits it exactly once.

options        the options of a write to Pulsar
plan           the topic, its segments and the columns of a write
rows           how rows become messages, by the schema of the topic
routing        divides the rows of a task among segments and entries. Pure
sending        the work of a task: it routes rows, sends entries and reports
attempts       which attempt of a task may send rows
control        the rules of the control topic. Pure
log_records    the bytes of the records of logs of one owner, and the error for damaged ones. Pure
owned_log      a log of one owner: a topic of one segment that only one producer writes
resolving      reads a log of one owner, and finds out how the transactions of earlier owners ended
work           what one commit makes visible, and the interface to the control topic
ends           asks the coordinator for the end of a transaction, until the outcome is known
committing     the driver's steps from the reports of the tasks to the end of the transaction
journal        tells the program of a transaction over several topics which of its writes have begun and ended
many_topics    the topics of a transaction, and the records of where its rows are. Also for one without Spark
control_topic  reads and writes the control topic of an application
settling       tells readers which records of a topic's writers' log they do not need any more
admin          creates topics through the REST interface
writer         the writers that Spark calls
"""
