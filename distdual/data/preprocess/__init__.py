"""What `prepare` does to raw features, stored with data sets and models so that other rows are treated the same.

scale           scaling of features, with the standard deviations of columns found in one pass
columns         the columns of a table and the features that each becomes
encode          rows of a table as features
table_options   options of `prepare` for tables
learn           levels, means and spreads of a table's columns, found in one pass
preprocessing   all of it as one value: stored, compared by fingerprint, applied to raw rows
stored          the preprocessing of a stored data set or model
"""
