# frozen_string_literal: true

module Memscope
  module CLI
    # A file that a command makes: it is either there and whole, or not there.
    module OutputFile
      # @param path [String] of a file that does not exist yet; it is made readable for its owner only
      # @param text [String]
      # @return [void]
      # @raise [Failure] naming the file and why it could not be written
      def self.write(path, text)
        made = false
        File.open(path, File::WRONLY | File::CREAT | File::EXCL, 0o600) do |file|
          made = true
          file.write(text)
        end
      rescue SystemCallError => e
        File.unlink(path) if made
        raise Failure.new("--output #{path}: #{e.class.new.message}; allowed: a file that does not exist yet, " \
                          "in a directory that can be written to", Command::INPUT_OUTPUT)
      end

      # Makes it empty first, so that nothing is begun where it cannot be made. It goes again where the block fails.
      #
      # @param path [String, nil] nil for none
      # @param failure [Class] of what the block raises then
      # @return [Object] what the block returns
      # @raise [Failure] as write
      def self.reserve(path, failure)
        write(path, "") if path
        begin
          yield
        rescue failure
          File.unlink(path) if path
          raise
        end
      end
    end
  end
end
